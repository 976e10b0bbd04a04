// Package budgettest is the conformance suite of retry-budget accounts: the
// one in the process and the one in the gate's script must not differ by a
// thousandth of a token.
package budgettest
