"""RabbitMQ: topology, sessions, publishing and consuming. Nothing outside this package knows AMQP."""
