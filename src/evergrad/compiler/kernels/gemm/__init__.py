"""Matrix products: selection, tiling, microkernels, packing, epilogues, OpenBLAS."""
