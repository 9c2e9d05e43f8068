"""Serializers, partitioners and interceptors."""
