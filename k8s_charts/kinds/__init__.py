"""One chart per step: namespace, volume, data job, training Job or PaddleJob; and the Job that
measures a trained model.
"""
