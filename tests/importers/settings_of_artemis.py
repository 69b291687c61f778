"""The names of all address settings of Artemis 2.44, and values for those that are no numbers."""

ADDRESS_SETTINGS = """
dead-letter-address
auto-create-dead-letter-resources
dead-letter-queue-prefix
dead-letter-queue-suffix
expiry-address
auto-create-expiry-resources
expiry-queue-prefix
expiry-queue-suffix
no-expiry
expiry-delay
min-expiry-delay
max-expiry-delay
redelivery-delay
redelivery-delay-multiplier
redelivery-collision-avoidance-factor
max-redelivery-delay
max-delivery-attempts
max-size-bytes
max-size-messages
page-limit-bytes
page-limit-messages
max-size-bytes-reject-threshold
page-size-bytes
page-max-cache-size
max-read-page-messages
prefetch-page-messages
max-read-page-bytes
prefetch-page-bytes
address-full-policy
page-full-policy
message-counter-history-day-limit
last-value-queue
default-last-value-queue
default-last-value-key
default-non-destructive
default-exclusive-queue
default-group-rebalance
default-group-rebalance-pause-dispatch
default-group-buckets
default-group-first-key
default-consumers-before-dispatch
default-delay-before-dispatch
redistribution-delay
send-to-dla-on-no-route
slow-consumer-threshold
slow-consumer-threshold-measurement-unit
slow-consumer-policy
slow-consumer-check-period
auto-create-jms-queues
auto-delete-jms-queues
auto-create-jms-topics
auto-delete-jms-topics
auto-create-queues
auto-delete-queues
auto-delete-created-queues
auto-delete-queues-delay
auto-delete-queues-message-count
auto-delete-queues-skip-usage-check
config-delete-queues
auto-create-addresses
auto-delete-addresses
auto-delete-addresses-delay
auto-delete-addresses-skip-usage-check
config-delete-addresses
config-delete-diverts
management-browse-page-size
management-message-attribute-size-limit
default-purge-on-no-consumers
default-max-consumers
default-queue-routing-type
default-address-routing-type
default-consumer-window-size
default-ring-size
retroactive-message-count
enable-metrics
enable-ingress-timestamp
id-cache-size
initial-queue-buffer-size
""".split()

_SWITCHES = (
    "auto-create-queues", "auto-create-addresses", "auto-create-jms-queues",
    "auto-create-jms-topics", "default-exclusive-queue",
)  # fmt: skip
VALUES = {
    **dict.fromkeys(_SWITCHES, "true"),
    "address-full-policy": "PAGE",
    "redelivery-collision-avoidance-factor": "0.5",
}
