#!/bin/sh
# The least rights of each role on Kafka, one user a role (docs/security.md).
#
#     deploy/kafka-acls.sh --bootstrap-server broker:9093 --command-config admin.properties
#
# All arguments go to Kafka's own tool; KAFKA_ACLS names it where it is not on the path. PREFIX is the
# prefix of topics and groups, as in `--log kafka://HOST:9092?prefix=`. Adding a rule twice changes nothing.
set -eu

tool="${KAFKA_ACLS:-kafka-acls.sh}"
prefix="${PREFIX:-lockstep.}"

# allow USERS OPERATIONS ARGUMENT...: on the place that `on_*` has named before.
allow() {
	users="" operations=""
	for user in $1; do users="$users --allow-principal User:$user"; done
	for operation in $2; do operations="$operations --operation $operation"; done
	shift 2
	# Unquoted on purpose: these are lists of words without spaces in them.
	$tool "$@" --add $users $operations $place
}

on_topics() {
	place=""
	for topic in $1; do place="$place --topic $prefix$topic"; done
}
on_all_topics() { place="--topic $prefix --resource-pattern-type prefixed"; }
on_tables() { place="--topic ${prefix}projector --resource-pattern-type prefixed"; }
# A group of a domain above 0 has its number behind the name.
on_group() { place="--group $prefix$1 --resource-pattern-type prefixed"; }

roles="lockstep-informers lockstep-sequencer lockstep-decider lockstep-projector lockstep-sink"

# Each process looks first whether a topic has been deleted, so it must see them all.
on_all_topics
allow "lockstep lockstep-operator lockstep-reader lockstep-device-agent $roles" "Describe" "$@"

# The history: whoever folds or follows it. `lockstep replay`, `state`, `decisions` need no more than that.
on_topics "journal decisions checkpoints"
allow "lockstep-operator lockstep-reader $roles" "Read" "$@"
# Reading is outside any group, but the client asks who would keep this one.
on_group "reader"
allow "lockstep-operator lockstep-reader $roles" "Describe" "$@"

on_topics "namespaces priorityclasses nodes devices quotas podgroups budgets pods"
allow "lockstep-informers" "Write" "$@"

on_topics "devices"
allow "lockstep-device-agent" "Write" "$@"

on_topics "admin results namespaces priorityclasses nodes devices quotas podgroups budgets pods"
allow "lockstep-sequencer" "Read" "$@"
on_topics "journal deadletter"
allow "lockstep-sequencer" "Write" "$@"
on_group "sequencer"
allow "lockstep-sequencer" "Read" "$@"

on_topics "decisions checkpoints"
allow "lockstep-decider" "Write" "$@"
on_group "decider"
allow "lockstep-decider" "Read" "$@"

# Faust asks for the changelogs of the tables to be made, also where they are there.
on_tables
allow "lockstep-projector" "Create Read" "$@"
on_group "projector"
allow "lockstep-projector" "Read" "$@"

on_topics "results"
allow "lockstep-sink" "Write" "$@"
# Informers alone follow decisions in the sink's place.
on_group "sink"
allow "lockstep-sink lockstep-informers" "Read" "$@"

# People: `lockstep topics create` and `check`, `lockstep evict`, dead letters.
on_all_topics
allow "lockstep-operator" "Create DescribeConfigs" "$@"
on_topics "admin"
allow "lockstep-operator" "Write" "$@"
on_topics "deadletter"
allow "lockstep-operator" "Read" "$@"

# One user for a service with all roles in one process.
on_all_topics
allow "lockstep" "Read Write" "$@"
on_group ""
allow "lockstep" "Read" "$@"
