"""The ways of the PaddlePaddle on AWS tutorials (2016-17), behind `Discovery` and `Runtime`.

Pods ask the API server for each other (pod-list), and Paddle 0.x trains.
"""
