"""What a worker tells about itself: metrics, the status topic, health, and the web page."""
