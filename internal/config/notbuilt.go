package config

// notBuilt lists the fields of the contract that no code stands behind yet, by
// the mapping they belong to. They are refused by name, never ignored: a limit
// that is written down and not kept would be worse than none. Whoever builds
// one takes it out here and reads it beside its neighbours.
var notBuilt = map[string]map[string]string{
	"providers.*": {
		"quotas": "a provider's quotas are not counted yet",
		"limits": "limits by key, group or route are not kept yet; rate, burst and concurrency hold for the whole provider",
	},
}

// notBuiltValues lists values of the contract that are refused likewise.
var notBuiltValues = map[string]map[string]string{
	"when_store_away": {"local_share": "only stop is: no call starts while Redis is away"},
}
