package graph

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"
)

var (
	errAllowed  = errors.New("allowed")
	allowed     = regexp.MustCompile("a")
	table       = map[string]int{"a": 1}
	noValue     int                      // want: without a value
	lock        = sync.Mutex{}           // want: holds a sync.Mutex
	lockPointer = &struct{ sync.Once }{} // want: holds a sync.Once
	queue       = make(chan int, 1)      // want: holds a channel
	counter     = 1
	numbers     = [4]int{1, 2, 3, 4}
)

func init() { // want: func init
	fmt.Fprintln(os.Stderr, errAllowed, allowed, noValue, queue)
}

func changes() {
	counter++          // want: counter is changed
	table["b"] = 2     // want: table is changed
	delete(table, "a") // want: table is changed
	numbers[1] = 7     // want: numbers is changed
	p := &counter      // want: counter is changed
	*p = 3
	counter := 5
	counter++
	lockPointer.Do(func() {})
	lock.Lock()
	os.Args = nil // want: Args is changed
}

func calls() int64 {
	if counter > 7 {
		panic("bug: counter past its end")
	}
	if counter > 6 {
		panic(fmt.Sprintf("bug: counter is %d", counter))
	}
	if counter > 5 {
		panic("too much") // want: panic
	}
	if counter > 4 {
		log.Fatal("no") // want: log.Fatal
	}
	if counter > 3 {
		os.Exit(1) // want: os.Exit
	}
	fmt.Println("hello")            // want: fmt.Println
	return time.Now().UnixMicro() + // want: time.Now
		rand.Int64() // want: math/rand
}

func ranges() (sum int) {
	for _, n := range table { // want: range over a map
		sum += n
	}
	for _, n := range numbers {
		sum += n
	}
	var keys []string
	for key := range table {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	// any order: a sum
	for _, n := range table {
		sum += n
	}
	return sum
}
