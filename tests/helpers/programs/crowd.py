"""Holds 100 connections to a port of this machine until its input ends."""

import socket
import sys

peers = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(100)]
print("here", flush=True)
sys.stdin.read()
