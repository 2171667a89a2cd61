"""The decoder with our Triton kernels in it: small operators fused, quantized matrices read as they are stored."""
