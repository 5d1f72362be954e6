//! Load for the cache, and what comes of it: who asks for what when, and whether it was right.
//!
//! | module | what it is |
//! |---|---|
//! | [`workload`] | which keys are got and put, when, and what their values are |
//! | [`tasks`] | many gets at once on one thread |
//! | [`writers`] | puts, each server's on a thread |
//! | [`seconds`] | what each second brought, for people and as JSON |
//! | [`run`] | the loop that puts these together |

pub mod run;
pub mod seconds;
pub mod tasks;
pub mod workload;
pub mod writers;
