"""Lambda function that has images built during a deployment. `infra/image_build.py` deploys this folder."""
