package queue

import "context"

// Ready reports whether jobs can be stored for a provider now: nil, ErrFull or
// ErrUnavailable. It always asks the server, but for its memory at most once a
// second.
func (c *Client) Ready(ctx context.Context, provider string) error {
	if err := CheckName("provider", provider); err != nil {
		return err
	}
	// A read of the provider's own node; whether the key exists does not matter.
	if err := c.rdb.Exists(ctx, c.keys(provider).Own("spec")).Err(); err != nil {
		return mapError(err)
	}
	_, err := c.room(ctx, provider, 0)
	return err
}
