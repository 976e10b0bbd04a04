package queue

// fullPercent of maxmemory is where Enqueue starts to refuse.
const fullPercent = 85
