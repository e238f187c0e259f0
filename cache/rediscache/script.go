package rediscache

import (
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
)

var (
	//go:embed scripts/common.lua
	luaCommon string
	//go:embed scripts/push.lua
	luaPush string
	//go:embed scripts/fill.lua
	luaFill string
	//go:embed scripts/nudge.lua
	luaNudge string
	//go:embed scripts/open.lua
	luaOpen string
	//go:embed scripts/regen.lua
	luaRegen string
	//go:embed scripts/lease.lua
	luaLease string
)

// script is one of the scripts that write.
type script uint8

const (
	scriptNone script = iota
	scriptPush
	scriptFill
	scriptNudge
	scriptOpen
	scriptRegen
	scriptLease
	numScripts
)

func (s script) String() string {
	return [...]string{"mget", "push", "fill", "nudge", "open", "regen", "lease"}[s]
}

// text is the script as Redis gets it.
func (s script) text() string {
	return [...]string{
		"", luaCommon + luaPush, luaCommon + luaFill, luaCommon + luaNudge, luaOpen, luaRegen, luaLease,
	}[s]
}

func (s script) sha() string {
	sum := sha1.Sum([]byte(s.text()))
	return hex.EncodeToString(sum[:])
}
