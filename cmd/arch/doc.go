// Package arch holds no code, only tests: the rules about Liana's source tree
// that a machine can check. `make lint` and `make test` run them.
//
//   - arch_test.go: which package may import which, who owns which third-party
//     module, what lies at the top of the tree.
//   - size_test.go: how long files and functions may be.
//   - source_test.go: calls, declarations and words that are not allowed, each
//     with what to do instead.
//   - docs_test.go: each package explains itself and every link leads somewhere.
//   - tour_test.go: the tours of the documents, extracted and (with LIANA_TOUR=1,
//     as `make tour` sets it) executed against servers of their own.
package arch
