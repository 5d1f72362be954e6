//! Both sides of StaR against each other, in memory.

mod deeds;
mod hostile;
mod pair;
mod stories;
mod swarm;
