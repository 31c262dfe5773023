# SPDX-License-Identifier: Apache-2.0
# Replaces the key tables of a manual page: awk -f keys.awk KEYS PAGE. KEYS is the output of `collrun schema --man`.
FNR == NR && / BEGIN keys / { section = $4 }
FNR == NR { table[section] = table[section] $0 "\n"; next }
/ BEGIN keys / { printf "%s", table[$4]; inside = 1 }
!inside { print }
/ END keys / { inside = 0 }
