//! Both sides of StaR against each other, in memory.

mod deeds;
mod hostile;
mod hostile_rc;
mod one_answer;
mod pair;
mod rc;
mod stories;
mod swarm;
