"""The operators' topic, and on demand one for a chat: encrypted, TLS only, e-mail subscribers from the settings."""

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.removal import removal_policy
from infra.settings import DeploymentSettings


class OperatorTopic(Construct):
    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        # A key of our own: alarms cannot publish through the key AWS manages for SNS, whose policy nobody can change.
        self.key = kms.Key(
            self,
            "Key",
            enable_key_rotation=True,
            removal_policy=removal_policy(settings),
            description="Encrypts the notifications of gpu-recovery",
        )
        self.topic = sns.Topic(self, "Topic", topic_name=settings.topic_name, enforce_ssl=True, master_key=self.key)
        alarms = iam.ServicePrincipal(
            "cloudwatch.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
        )
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsEncrypt",
                principals=[alarms],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
            )
        )  # in a key policy `*` is this key
        # enforce_ssl replaces the topic's default policy, which would have let the account's alarms in.
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsPublish", principals=[alarms], actions=["sns:Publish"], resources=[self.topic.topic_arn]
            )
        )
        for address in settings.alert_emails:
            self.topic.add_subscription(subscriptions.EmailSubscription(address))
        self.chat = self._chat(f"{settings.topic_name}-chat") if settings.chat_topic else None

    def _chat(self, name: str) -> sns.Topic:
        # People subscribe a chat client to it, never mailboxes: its messages are JSON. Alarms stay on the first.
        return sns.Topic(self, "Chat", topic_name=name, enforce_ssl=True, master_key=self.key)

    @property
    def chat_arn(self) -> str:
        """Empty if there is no second topic."""
        return self.chat.topic_arn if self.chat else ""
