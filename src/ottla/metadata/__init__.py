"""What a cluster knows about itself: the records that say so, and the image they make."""
