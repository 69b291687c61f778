#!/bin/sh
# A consumer of a ring queue with kcat: attach, receive, ack, release, detach. kcat has no transactions
# over several commands, so it has no sessions.
#
#   consumer.sh BROKERS QUEUE
#
# It acks the first message, releases the second, and acks it when it comes back.
set -eu
brokers=$1 queue=$2 me=kcat-$$

command() { # TYPE MORE: the key decides the partition, as it does for Java's producer
    printf '{"type":"%s","queue":"%s","consumer":"%s"%s}' "$1" "$queue" "$me" "$2" |
        kcat -q -b "$brokers" -P -t ringfaust.control -k "$queue" -X partitioner=murmur2_random
}

deliveries() { # ID and number of each delivery to us so far
    kcat -q -b "$brokers" -C -t ringfaust.dispatched -o beginning -e -X isolation.level=read_committed -f '%h\n' |
        tr ',' '\n' | awk -F= -v me="$me" '
            $1 == "ringfaust-id" { id = $2 }
            $1 == "ringfaust-consumer" { consumer = $2 }
            $1 == "ringfaust-delivery" { if (consumer == me) print id, $2 }'
}

receive() { # the NTH delivery
    until [ "$(deliveries | wc -l)" -ge "$1" ]; do sleep 1; done
    deliveries | sed -n "$1p"
}

settle() { # TYPE ID NUMBER
    command "$1" ",\"message\":\"$2\",\"delivery\":$3"
}

command attach ',"credit":1'
echo attached
set -- $(receive 1)
settle ack "$1" "$2"
echo "acked $1"
set -- $(receive 2)
settle release "$1" "$2"
echo "released $1"
set -- $(receive 3)
settle ack "$1" "$2"
echo "acked $1 again"
command detach ''
echo detached
