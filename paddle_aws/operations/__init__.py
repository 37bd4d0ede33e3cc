"""The console script `paddle-aws`: what cdk and kubectl do not do for a training job."""
