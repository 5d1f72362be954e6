//! Both sides of StaR against each other, in memory.

mod deeds;
mod hostile;
mod hostile_rc;
mod lookups;
mod one_answer;
mod pair;
mod rc;
mod recordings;
mod shares;
mod stories;
mod swarm;
mod taken_back;
