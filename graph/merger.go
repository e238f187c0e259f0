package graph

import (
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// Merger folds the operands of list pages. The state store is opened with it.
// Its name is stored with the data.
func Merger() *kv.Merger {
	return &kv.Merger{
		Name:      "liana.edgelist.v1",
		IsOperand: edgelist.IsOperand,
		Fold: func(key, base []byte, operands [][]byte) ([]byte, error) {
			v, err := edgelist.Fold(base, operands)
			return v, mergeError(key, err)
		},
		Combine: func(key []byte, operands [][]byte) ([]byte, error) {
			v, err := edgelist.Combine(operands)
			return v, mergeError(key, err)
		},
	}
}

func mergeError(key []byte, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: key %x: %w", kv.ErrCorruption, key, err)
}
