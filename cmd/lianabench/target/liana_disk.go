package target

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/pebblekv"
)

// The parts of the key space that are told apart on disk: package graph, keys.go.
const (
	localRows = 0xFFF0 // data lies below; rows of a shard for itself above
	changeLog = 'c'
)

// DiskUsage stops the server, compacts its state and measures it: the data, and
// apart from it what is kept for a time only. Then the server runs again.
func (s *lianaServer) DiskUsage(ctx context.Context) ([]DiskPart, error) {
	if s.proc == nil {
		return nil, errors.New("the disk of a server that was not started here is out of sight")
	}
	if err := s.Stop(); err != nil {
		return nil, err
	}
	parts, err := s.measureDisk()
	if err != nil {
		return nil, err
	}
	return parts, s.Restart(ctx)
}

func (s *lianaServer) measureDisk() (parts []DiskPart, err error) {
	dir, err := datadir.Open(s.data(), datadir.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	parts, err = stateParts(dir.StatePath(), dir.Identity().Shards)
	if err != nil {
		return nil, err
	}
	log, err := dirBytes(dir.LogPath())
	if err != nil {
		return nil, err
	}
	return append(parts, DiskPart{Name: "Raft log", Bytes: log, Apart: true}), nil
}

// stateParts compacts a state store and returns what its parts take.
func stateParts(path string, shards int) (parts []DiskPart, err error) {
	store, err := pebblekv.Open(path, pebblekv.Options{Merger: graph.Merger()})
	if err != nil {
		return nil, err
	}
	tables := uint64(0)
	defer func() {
		err = errors.Join(err, store.Close())
		if files, sizeErr := dirBytes(path); err == nil {
			// Logs for reuse and other files whose size does not follow the data.
			parts = append(parts, DiskPart{Name: "other files of the engine", Bytes: files - min(tables, files), Apart: true})
			err = sizeErr
		}
	}()
	if err := errors.Join(store.Flush(), store.Compact(kv.Span{})); err != nil {
		return nil, err
	}
	local := binary.BigEndian.AppendUint16(nil, localRows)
	changes := uint64(0)
	for shard := range shards {
		prefix := append(binary.BigEndian.AppendUint32(local, uint32(shard)), changeLog)
		n, err := store.EstimateDiskUsage(kv.PrefixSpan(prefix))
		if err != nil {
			return nil, fmt.Errorf("change log of shard %d: %w", shard, err)
		}
		changes += n
	}
	data, errData := store.EstimateDiskUsage(kv.Span{Upper: local})
	rest, errRest := store.EstimateDiskUsage(kv.Span{Lower: local})
	if err := errors.Join(errData, errRest); err != nil {
		return nil, err
	}
	tables = data + rest
	return []DiskPart{
		{Name: "lists and counters", Bytes: data},
		{Name: "streams between shards", Bytes: rest - min(changes, rest)},
		{Name: "change log", Bytes: changes, Apart: true},
	}, nil
}
