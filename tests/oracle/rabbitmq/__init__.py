"""A comparison of what `ringfaust import rabbitmq` writes with a real RabbitMQ."""
