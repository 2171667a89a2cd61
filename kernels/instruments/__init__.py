"""What a kernel does, seen without a GPU (inspect, traffic) and with one (bench)."""
