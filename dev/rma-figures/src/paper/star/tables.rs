//! Tables II and III: the paper's are of an FPGA. Here: the memory of engine and library for a
//! connection, a queue pair and a work request, at both roles.

use rma_bench::aead;
use rma_core::{addr::HostAddr, backend::ReceiveLenMax, crypto::CounterBlock};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    service::Star,
};

use crate::{
    allocator,
    paper::{
        claims::Claim,
        figure::{About, Figure, FigureFailed, Kind},
        points::{Points, Table},
        run::Run,
    },
    stations::{
        asked::{self, MORE, OfLibrary},
        flat::MANY,
    },
};

/// The names of numbers that claims are of.
const FLAT: &str = "engine of the stateless side, for a connection";
const ASKED: &str = "what it is given for 100,000 connections and a call on each";

/// Bytes of memory.
#[derive(Debug)]
pub(super) struct Tables;

/// An engine with room for so many connections of which it is the stateful side, and so many work
/// requests of theirs.
fn stateful_bytes(connections: u32, work_requests: u32) -> Result<f64, FigureFailed> {
    let mut place = StarPlace::at(HostAddr::from([192, 0, 2, 1]));
    place.receive_len_max = ReceiveLenMax::of_mtu(1500);
    let mut config = StarConfigBuilder::default();
    (config.connections, config.work_requests) = (connections, work_requests);
    let config = config.build(place).map_err(|why| FigureFailed::Settings(why.to_string()))?;
    Ok(Star::new(config, CounterBlock::new(0, 1 << 40)).stateful_memory() as f64)
}

impl Figure for Tables {
    fn about(&self) -> About {
        About {
            id: "star-tables",
            title: "Memory of both roles (in place of tables II and III)",
            says: "the stateless side keeps no state of connections; the paper has LUTs and RAM of its two NICs",
            kind: Kind::Memory,
            seconds: 30,
        }
    }

    fn points(&self, _: &Run<'_>) -> Result<Points, FigureFailed> {
        if !allocator::counts() {
            return Err(FigureFailed::Settings(
                "this program's allocator does not count".to_owned(),
            ));
        }
        let conditions = "bytes that the allocator gave, not sums of sizes; tables of engines are as long as settings say, \
                          in use or not; a queue pair and a work request with their words in the portal";
        let mut points = Points::new(&self.about(), conditions);
        let of_engine = asked::by_engine(aead::chosen());
        let more = of_engine.tables_of_all as f64 - of_engine.tables_of_one as f64;
        // The work requests of a call: three RECVs and a SEND.
        let stateless_request = of_engine.asked.given as f64 / f64::from(4 * MANY);
        let stateless_connection = more / f64::from(MANY - 1);
        points.number(FLAT, stateless_connection, "B");
        points.number(ASKED, of_engine.asked.given as f64, "B");
        let base = StarConfigBuilder::default();
        let stateful = |connections, requests| stateful_bytes(connections, requests);
        let whole = stateful(base.connections, base.work_requests)?;
        let twice = stateful(2 * base.connections, base.work_requests)?;
        let connection = (twice - whole) / f64::from(base.connections);
        let longer = stateful(base.connections, 2 * base.work_requests)?;
        let request = (longer - whole) / f64::from(base.work_requests);
        let sides = [false, true].map(|is_stateful| asked::by_library(aead::chosen(), is_stateful));
        let row = |what: &str, values: [f64; 2]| {
            let values =
                values.map(|it| if it.abs() < 0.005 { "0".to_owned() } else { format!("{it:.1}") });
            let [stateless, stateful] = values;
            vec![what.to_owned(), stateless, stateful]
        };
        let of = |value: fn(&OfLibrary) -> f64| sides.each_ref().map(value);
        let whole_library = sides.each_ref().map(|it| it.all as f64 / f64::from(MORE));
        points.tables.push(Table {
            title: format!("Bytes; library: of {MORE} queue pairs with an open RECV each"),
            heads: ["", "stateless side", "stateful side"].map(str::to_owned).into(),
            rows: vec![
                row("engine: its tables by default", [of_engine.tables_of_one as f64, whole]),
                row("engine: a connection more", [stateless_connection, connection]),
                row("engine: a work request more", [stateless_request, request]),
                row("library and portal: a queue pair", of(|it| it.per_qp)),
                row("library and portal: a work request", of(|it| it.per_wr)),
                row("library and portal: both, with all there is", whole_library),
            ],
        });
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let none = |id: &str, says: &str, name: &str| {
            points.value(name).map(|value| Claim::at_most(id, says, name, value, 0.0))
        };
        let claims = [
            none(
                "star-tables-flat",
                "the stateless side's engine has nothing of a connection",
                FLAT,
            ),
            none("star-tables-asked", "nor asks for memory meanwhile", ASKED),
        ];
        claims.into_iter().flatten().collect()
    }

    fn picture(&self, _: &Points) -> Option<rma_bench::drawing::Picture> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_for_a_connection_is_too_much() {
        let holds = |flat, asked| {
            let mut points = Points::new(&Tables.about(), "");
            points.number(FLAT, flat, "B");
            points.number(ASKED, asked, "B");
            Tables.claims(&points).iter().map(|it| it.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds(0.0, 0.0), [true, true]);
        assert_eq!((holds(0.001, 0.0), holds(0.0, 1.0)), (vec![false, true], vec![true, false]));
    }
}
