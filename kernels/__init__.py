"""Our Triton kernels. Import them as `minillm.kernels`: the top-level name belongs to Hugging Face's package `kernels`."""
