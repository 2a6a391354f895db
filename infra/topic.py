"""SNS topics for operators: a topic for e-mail and alarms, and an optional chat topic.

Both are encrypted and accept only TLS. The settings give the e-mail addresses and the endpoints
that are subscribed.
"""

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.alert_endpoints import protocol, subscription_id
from infra.removal import removal_policy
from infra.settings import DeploymentSettings


class OperatorTopic(Construct):
    """The operators' topic (`topic`), the optional chat topic (`chat`) and the key that encrypts both (`key`)."""

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        # A customer managed key. Alarms cannot publish through the AWS managed key for SNS, and the policy of that key
        # cannot be changed.
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
        )  # in a key policy, `*` is the key itself
        # enforce_ssl replaces the default policy of the topic, which would have allowed the alarms of the account.
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsPublish", principals=[alarms], actions=["sns:Publish"], resources=[self.topic.topic_arn]
            )
        )
        for address in settings.alert_emails:
            self.topic.add_subscription(subscriptions.EmailSubscription(address))
        for endpoint in settings.alert_endpoints:
            sns.Subscription(
                self,
                subscription_id(endpoint),
                topic=self.topic,
                endpoint=endpoint,
                protocol=sns.SubscriptionProtocol[protocol(endpoint).upper()],
            )
        self.chat = self._chat(f"{settings.topic_name}-chat") if settings.chat_topic else None

    def _chat(self, name: str) -> sns.Topic:
        # For a chat client only, because the messages are JSON. Alarms and e-mail use the operators' topic.
        return sns.Topic(self, "Chat", topic_name=name, enforce_ssl=True, master_key=self.key)

    @property
    def chat_arn(self) -> str:
        """ARN of the chat topic. Empty if there is none."""
        return self.chat.topic_arn if self.chat else ""
