package pebblekv

// notifier calls a function from a goroutine of its own, since Pebble reports
// events with its locks held. The function never runs twice at once.
type notifier[T any] struct {
	queue chan T
	quit  chan struct{}
	done  chan struct{}
}

// newNotifier starts a notifier with room for depth events.
func newNotifier[T any](depth int, call func(T)) *notifier[T] {
	n := &notifier[T]{queue: make(chan T, depth), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(n.done)
		for {
			select {
			case v := <-n.queue:
				call(v)
			case <-n.quit:
				return
			}
		}
	}()
	return n
}

// notify never waits; with a full queue the event is dropped, as those before
// it are still to be handled.
func (n *notifier[T]) notify(v T) {
	select {
	case n.queue <- v:
	default:
	}
}

// close waits for a running call. Queued events are dropped.
func (n *notifier[T]) close() {
	close(n.quit)
	<-n.done
}
