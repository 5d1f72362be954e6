//! The effect of each chosen parameter on the ratios, and of each way to have fewer frames.

use rma_bench::{interrupt::Interrupt, line};
use rma_sim::star::model::{
    cache::Replacement,
    claims::over,
    figures::{Curve, Setting},
    frames::{Layout, Wire},
    load::Workload::{Ml, Rpc},
    rc::Order,
    stateless::Fusion,
    time::Picos,
};

/// Prints both.
pub(super) fn print(setting: &Setting, interrupt: &Interrupt) {
    line!("400 connections, each parameter by itself; ML over ScalaRDMA at 260 and 400");
    line!(
        "| | StaR over RDMA on FPGA | over RC without limit | faithful over RDMA on FPGA | three answers over RC without limit | ML over ScalaRDMA | three answers |"
    );
    line!("|---|---|---|---|---|---|---|");
    for (name, setting) in swept(setting).into_iter().take_while(|_| !interrupt.is_set()) {
        let three_answers = Curve::Star(Fusion::THREE_ANSWERS);
        let rpc = |curve, baseline| over(&setting, Rpc, 400, (curve, baseline));
        let scala = |curve| {
            let at = |connections| over(&setting, Ml, connections, (curve, Curve::ScalaRdma));
            format!("{:.2}, {:.2}", at(260), at(400))
        };
        line!(
            "| {name} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} |",
            rpc(Curve::STAR, Curve::RdmaOnFpga),
            rpc(Curve::STAR, Curve::Unlimited),
            rpc(Curve::FAITHFUL, Curve::RdmaOnFpga),
            rpc(three_answers, Curve::Unlimited),
            scala(Curve::STAR),
            scala(three_answers),
        );
    }
    line!("\n400 connections, M calls/s, RPC / ML: each way to have fewer frames");
    line!("| | alone, from the paper's sequence | without it, from the default |\n|---|---|---|");
    for (name, alone, without) in fusions() {
        let calls = |fusion| {
            let at = |workload| Curve::Star(fusion).run(setting, workload, 400).calls_per_s * 1e-6;
            format!("{:.2} / {:.2}", at(Rpc), at(Ml))
        };
        line!("| {name} | {} | {} |", calls(alone), calls(without));
    }
}

fn swept(base: &Setting) -> Vec<(String, Setting)> {
    let micros = |tenths: u64| Picos::nanos(tenths * 100);
    let named = |what: &str, tenths: u64| format!("{what} {:.1} us", tenths as f64 / 10.0);
    let other = match base.wire.layout {
        Layout::Paper => ("our frames", Wire::OURS),
        Layout::Ours => ("the paper's frames", Wire::PAPER),
    };
    let mut all = vec![("as it is".to_owned(), *base)];
    for tenths in [0, 5, 20, 40] {
        all.push((named("turn", tenths), Setting { turn: micros(tenths), ..*base }));
    }
    let entry = Wire { entry: 32, ..base.wire };
    all.push(("32 B a work request".to_owned(), Setting { wire: entry, ..*base }));
    all.push((other.0.to_owned(), Setting { wire: other.1, ..*base }));
    for tenths in [1, 2, 5, 20] {
        all.push((named("penalty", tenths), Setting { penalty: micros(tenths), ..*base }));
    }
    for tenths in [5, 20] {
        let (delay, host) = (micros(tenths), micros(tenths));
        all.push((named("switch, and host,", tenths), Setting { delay, host, ..*base }));
    }
    for tenths in [0, 40] {
        let group_switch = micros(tenths);
        all.push((named("switch of groups", tenths), Setting { group_switch, ..*base }));
    }
    let replacement = Replacement::Random(1);
    all.push(("any state makes room".to_owned(), Setting { replacement, ..*base }));
    let order = Order::Alternating;
    all.push(("pipeline: in and out by turns".to_owned(), Setting { order, ..*base }));
    all
}

/// Each way: its name, it alone, and the default without it.
fn fusions() -> [(&'static str, Fusion, Fusion); 7] {
    let (none, all) = (Fusion::FAITHFUL, Fusion::DEFAULT);
    [
        ("none, all", none, all),
        (
            "several in a WQEP, a CQEP",
            Fusion { several: true, ..none },
            Fusion { several: false, ..all },
        ),
        (
            "an RD that completes",
            Fusion { completes: true, ..none },
            Fusion { completes: false, ..all },
        ),
        ("inline data", Fusion { inline: true, ..none }, Fusion { inline: false, ..all }),
        ("one EA a turn", Fusion { one_ea: true, ..none }, Fusion { one_ea: false, ..all }),
        ("shared packets", Fusion { packets: true, ..none }, Fusion { packets: false, ..all }),
        (
            "one answer to a WQEP (alone: with inline)",
            Fusion { one_answer: true, inline: true, ..none },
            Fusion::THREE_ANSWERS,
        ),
    ]
}
