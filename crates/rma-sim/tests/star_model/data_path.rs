//! The data path: WQEP, RD, GD, CQEP and their answers, with losses, replays and restarts.
