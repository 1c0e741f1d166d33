from evergrad.ops import linalg_solve, linalg_factor, linalg_lu, linalg_spectra
