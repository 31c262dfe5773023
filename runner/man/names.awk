# SPDX-License-Identifier: Apache-2.0
# The functions that a page of section 3 documents: the words of its NAME section, one a line.
/^\.SH SYNOPSIS/ { exit }
on { sub(/ *\\-.*/, ""); n = split($0, names, /[, ]+/); for (i = 1; i <= n; i++) if (names[i] != "") print names[i] }
/^\.SH NAME/ { on = 1 }
