//! Models of the protocols, explored exhaustively: the four hops of 1RMA, and StaR's data path and
//! change of roles.

mod four_hop_model;
mod star_model;
