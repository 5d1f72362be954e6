//! Models of the protocols, explored exhaustively: the four hops of 1RMA, StaR's data path and
//! change of roles, and the Rekey of a host with several engines.

mod four_hop_model;
mod rekey_model;
mod star_model;
