package target

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// postgresStatements are prepared on each connection, by name. Batches touch
// rows in the order of their keys, so that two of them cannot block each other.
func postgresStatements() map[string]string {
	return map[string]string{
		"add": `WITH new AS (INSERT INTO likes VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING note_id)
			INSERT INTO note_counts SELECT note_id, 1 FROM new
			ON CONFLICT (note_id) DO UPDATE SET n = note_counts.n + 1`,
		"addMany": `WITH new AS (INSERT INTO likes
				SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[]) ORDER BY 1, 2
				ON CONFLICT DO NOTHING RETURNING note_id),
			counted AS (INSERT INTO note_counts SELECT note_id, count(*) FROM new GROUP BY note_id ORDER BY note_id
				ON CONFLICT (note_id) DO UPDATE SET n = note_counts.n + EXCLUDED.n)
			SELECT count(*) FROM new`,
		"delete": `WITH old AS (DELETE FROM likes WHERE user_id = $1 AND note_id = $2 RETURNING note_id)
			UPDATE note_counts SET n = n - 1 FROM old WHERE note_counts.note_id = old.note_id`,
		"update":    `UPDATE likes SET created_at = $3 WHERE user_id = $1 AND note_id = $2`,
		"has":       `SELECT note_id FROM likes WHERE user_id = $1 AND note_id = ANY($2)`,
		"countIn":   `SELECT note_id, n FROM note_counts WHERE note_id = ANY($1)`,
		"countOut":  `SELECT user_id, count(*) FROM likes WHERE user_id = ANY($1) GROUP BY user_id`,
		"listIn":    `SELECT user_id, created_at FROM likes WHERE note_id = $1 ORDER BY created_at DESC, user_id OFFSET $2 LIMIT $3`,
		"listOut":   `SELECT note_id, created_at FROM likes WHERE user_id = $1 ORDER BY created_at DESC, note_id OFFSET $2 LIMIT $3`,
		"windowIn":  `SELECT count(*) FROM likes WHERE note_id = $1 AND created_at >= $2 AND created_at < $3`,
		"windowOut": `SELECT count(*) FROM likes WHERE user_id = $1 AND created_at >= $2 AND created_at < $3`,
	}
}

type postgresSession struct {
	conn  *pgx.Conn
	lists bool
	index map[uint64][]int // position of an id in a batch; reused
}

func newPostgresSession(ctx context.Context, conn *pgx.Conn, lists bool) (Session, error) {
	for name, sql := range postgresStatements() {
		if _, err := conn.Prepare(ctx, name, sql); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	return &postgresSession{conn: conn, lists: lists, index: map[uint64][]int{}}, nil
}

func (s *postgresSession) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.conn.Close(ctx)
}

func (s *postgresSession) AddEdge(ctx context.Context, e workload.Edge) (bool, error) {
	return s.exec(ctx, "add", int64(e.Src), int64(e.Dst), edgeTime(e))
}

func (s *postgresSession) DeleteEdge(ctx context.Context, e workload.Edge) (bool, error) {
	return s.exec(ctx, "delete", int64(e.Src), int64(e.Dst))
}

func (s *postgresSession) UpdateEdge(ctx context.Context, e workload.Edge) (bool, error) {
	return s.exec(ctx, "update", int64(e.Src), int64(e.Dst), edgeTime(e))
}

func (s *postgresSession) exec(ctx context.Context, statement string, args ...any) (bool, error) {
	tag, err := s.conn.Exec(ctx, statement, args...)
	return tag.RowsAffected() == 1, err
}

func edgeTime(e workload.Edge) time.Time { return time.UnixMicro(timeOrNow(e.Time)) }

func (s *postgresSession) AddEdges(ctx context.Context, edges []workload.Edge) (int, error) {
	users, notes := make([]int64, len(edges)), make([]int64, len(edges))
	times := make([]time.Time, len(edges))
	for i, e := range edges {
		users[i], notes[i], times[i] = int64(e.Src), int64(e.Dst), edgeTime(e)
	}
	var changed int
	err := s.conn.QueryRow(ctx, "addMany", users, notes, times).Scan(&changed)
	return changed, err
}

// positions indexes a batch by id.
func (s *postgresSession) positions(ids []uint64) []int64 {
	clear(s.index)
	args := make([]int64, len(ids))
	for i, id := range ids {
		args[i] = int64(id)
		s.index[id] = append(s.index[id], i)
	}
	return args
}

func (s *postgresSession) HasEdges(ctx context.Context, src uint64, dsts []uint64, exists []bool) error {
	clear(exists)
	args := s.positions(dsts)
	rows, err := s.conn.Query(ctx, "has", int64(src), args)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		for _, i := range s.index[uint64(id)] {
			exists[i] = true
		}
	}
	return rows.Err()
}

func (s *postgresSession) CountEdges(ctx context.Context, in bool, ids []uint64, counts []uint64) error {
	clear(counts)
	statement := "countOut"
	if in {
		statement = "countIn"
	}
	args := s.positions(ids)
	rows, err := s.conn.Query(ctx, statement, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, n int64
		if err := rows.Scan(&id, &n); err != nil {
			return err
		}
		for _, i := range s.index[uint64(id)] {
			counts[i] = uint64(n)
		}
	}
	return rows.Err()
}

func (s *postgresSession) ListNewest(ctx context.Context, l List, skip, limit int, page []Peer) ([]Peer, error) {
	if !s.lists {
		return page, errNoLists
	}
	statement := "listOut"
	if l.In {
		statement = "listIn"
	}
	rows, err := s.conn.Query(ctx, statement, int64(l.Vertex), skip, limit)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var at time.Time
		if err := rows.Scan(&id, &at); err != nil {
			return page, err
		}
		page = append(page, Peer{ID: uint64(id), Time: at.UnixMicro()})
	}
	return page, rows.Err()
}

func (s *postgresSession) CountWindow(ctx context.Context, l List, since, until int64) (uint64, error) {
	if !s.lists {
		return 0, errNoLists
	}
	statement := "windowOut"
	if l.In {
		statement = "windowIn"
	}
	var n int64
	err := s.conn.QueryRow(ctx, statement, int64(l.Vertex), time.UnixMicro(since), time.UnixMicro(until)).Scan(&n)
	return uint64(n), err
}
