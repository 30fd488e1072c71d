"""Programs on a GPU: the same loop IR, its iterations spread over blocks of threads.

In: a program, and the sizes, strides and addresses of a call. Out: a schedule, a nest and its launches. What always
holds: none of them depends on the device, so all devices give the same bits.

In order of reading: `schedule` (the forms), `scheduling` (choosing one for a call; with `tuning` for its figures,
`lines` for elements, `sharing` for rows, `keeping` for what stays in registers and `tiling` for squares), `nesting`
(the loops; with `halves` for arithmetic of 16 bits, and `tiles`), `launches` (which threads run them; with `dividing`),
`interpreter` (what they mean).
"""
