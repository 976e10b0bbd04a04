package bench

import (
	"context"
	"errors"
)

func startPenstock(ctx context.Context, spec workerSpec, count *counter) (side, error) {
	return nil, errors.New("wait")
}
