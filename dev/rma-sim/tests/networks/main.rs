//! Simulated networks with a purpose: calls, keys that rotate, a Rekey at each point, stories, and
//! attacks on hosts of several engines.

mod attacks_on_engines;
mod calls;
mod keys;
mod rekey_hops;
mod stories;
