"""Frames over ZeroMQ sockets."""
