package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// demoResult is what the demo loaded, and ids worth a look.
type demoResult struct {
	Likes        int     `json:"likes"`
	Created      uint64  `json:"created"`
	AlreadyThere uint64  `json:"already_there"`
	Seconds      float64 `json:"seconds"`
	BusiestUser  string  `json:"busiest_user"`
	BusiestNote  string  `json:"busiest_note"`
	// Somebody who likes the busiest note.
	Liker string `json:"liker"`
}

func (c *cli) demoCommand() *cobra.Command {
	flags := new(struct {
		loadFlags
		waitFlag
		seed  uint64
		likes int
	})
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Load 100,000 likes to try things with",
		Long: `Load likes of users on notes to try things with, and show commands to try next.
The stream has the shape of a real one: 100,000 likes of 16,554 users on 10,506
notes over half a year of 2013. One seed always makes the same likes.`,
		Example: `  liana demo
  liana demo --likes 1000 --seed 7`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if flags.likes < 1 || flags.likes > demoLikes {
				return usagef("--likes: want 1 to %d, got %d", demoLikes, flags.likes)
			}
			wait, err := flags.wait()
			if err != nil {
				return err
			}
			client, err := c.graph()
			if err != nil {
				return err
			}
			source := &demoSource{likes: demoStream(flags.seed, flags.likes), batch: flags.batch}
			l := &loader{client: client, wait: wait, inFlight: flags.inFlight, timeout: c.timeout,
				stall: c.stallLimit(cmd, loadStall), retryFor: defaultRetryFor, source: source}
			return c.demo(cmd.Context(), l, source.likes)
		},
	}
	flags.loadFlags.register(cmd)
	flags.waitFlag.register(cmd)
	cmd.Flags().Uint64Var(&flags.seed, "seed", 1, "seed of the stream")
	cmd.Flags().IntVar(&flags.likes, "likes", demoLikes, "load only the oldest so many likes")
	return cmd
}

func (c *cli) demo(ctx context.Context, l *loader, likes []demoLike) error {
	// A first call shows at once whether there is a server, and whether its schema fits.
	if _, err := c.probe(ctx, l.client, &mapping{Type: "like", From: "user", To: "note"}); err != nil {
		return err
	}
	result := demoFavourites(likes)
	bar := c.newProgress("likes")
	l.settled = func(b *batch, s settlement) error {
		result.Created += s.created
		result.AlreadyThere += s.alreadyThere
		if len(s.rejects) > 0 {
			return fmt.Errorf("the server refused a like: %s", s.rejects[0].reason)
		}
		bar.update(result.Created+result.AlreadyThere, b.share)
		return nil
	}
	start := time.Now()
	err := l.run(ctx)
	bar.clear()
	if err != nil {
		return err
	}
	result.Seconds = time.Since(start).Seconds()
	return c.out.value(result, func(w io.Writer) { c.demoTour(w, result) })
}

// demoFavourites finds the user with the most likes given, the note with the most
// received, and one liker of that note.
func demoFavourites(likes []demoLike) *demoResult {
	users, notes := make(map[uint64]int), make(map[uint64]int)
	var user, note, liker uint64
	for _, like := range likes {
		users[like.user]++
		notes[like.note]++
		if users[like.user] > users[user] {
			user = like.user
		}
		if notes[like.note] > notes[note] {
			note = like.note
		}
	}
	for _, like := range likes {
		if like.note == note {
			liker = like.user
		}
	}
	return &demoResult{Likes: len(likes), BusiestUser: fmt.Sprintf("user:%d", user),
		BusiestNote: fmt.Sprintf("note:%d", note), Liker: fmt.Sprintf("user:%d", liker)}
}

func (c *cli) demoTour(w io.Writer, r *demoResult) {
	addr := ""
	if c.addr != defaultAddr {
		addr = " --addr " + c.addr
	}
	fmt.Fprintf(w, "%d likes loaded in %.1f s (created %d, already there %d). Try:\n\n",
		r.Likes, r.Seconds, r.Created, r.AlreadyThere)
	for _, command := range []string{
		"edge count " + r.BusiestNote + " like --in",
		"edge list " + r.BusiestNote + " like --in --limit 5",
		"edge list " + r.BusiestUser + " like --oldest --limit 5",
		"edge has " + r.Liker + " like " + r.BusiestNote,
		"edge count " + r.BusiestNote + " like --in --since 2013-06-01 --until 2013-07-01",
		"edge add user:1000000 like " + r.BusiestNote,
		"counter incr " + r.BusiestNote + " views",
		"check",
	} {
		fmt.Fprintf(w, "  liana%s %s\n", addr, command)
	}
}
