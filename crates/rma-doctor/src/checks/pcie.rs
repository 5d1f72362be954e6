//! The place of the device: slot and node.

use super::{Answer, Answered, Subject};
use crate::{
    snapshot::Unseen,
    text::{cores, quoted},
};

const NODE: &str = "sys/devices/system/node";

pub(super) fn pcie(subject: &Subject<'_>) -> Answered {
    let files = &subject.interface.files;
    let found = |what: &str| {
        let now = files.find(&format!("device/current_link_{what}"))?;
        let max = files.find(&format!("device/max_link_{what}"))?;
        Ok::<_, Unseen>(now.zip(max))
    };
    let (Some(speed), Some(width)) = (found("speed")?, found("width")?) else {
        return Ok(Answer::does_not_apply("it is in no PCIe slot"));
    };
    let number = |text: &str| text.split(' ').next().and_then(|it| it.parse::<f64>().ok());
    let is_less = |now: &str, max: &str| match (number(now), number(max)) {
        (Some(now), Some(max)) => Ok(now < max),
        _ => Err(Unseen(format!("{now:?} and {max:?} are no speed or width"))),
    };
    let text = format!("{} x{}", speed.0, width.0);
    Ok(if is_less(speed.0, speed.1)? || is_less(width.0, width.1)? {
        Answer::mend(text).wanted(format!("{} x{}", speed.1, width.1)).command(
            match subject.interface.bus.get() {
                Ok(Some(bus)) => format!("lspci -vv -s {}", quoted(bus)),
                _ => "lspci -vv".to_owned(),
            },
        )
    } else {
        Answer::ok(text)
    })
}

/// The cores of the node that the device is at; all if there is one node only.
pub(super) fn near(subject: &Subject<'_>) -> Result<Vec<usize>, Unseen> {
    let files = &subject.machine.files;
    let nodes = cores(files.find(&format!("{NODE}/online"))?.unwrap_or("0"));
    if nodes.len() < 2 {
        return subject.machine.cores.get().cloned();
    }
    let node = subject.interface.files.find("device/numa_node")?.unwrap_or("-1");
    if node.parse::<u32>().is_err() {
        return Err(Unseen(
            "there are several nodes, and the system does not tell the device's".into(),
        ));
    }
    Ok(cores(files.text(&format!("{NODE}/node{node}/cpulist"))?))
}

pub(super) fn numa(subject: &Subject<'_>) -> Answered {
    if subject.interface.driver.get()?.is_none() {
        return Ok(Answer::does_not_apply("there is no device behind it"));
    }
    let near = near(subject)?;
    let wanted = &subject.wanted.cores;
    let used = if wanted.is_empty() { subject.machine.cores.get()? } else { wanted };
    let far = used.iter().filter(|it| !near.contains(it)).count();
    let list = near.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Ok(match (far, wanted.is_empty()) {
        (0, _) => Answer::ok("the cores are near the device"),
        (_, true) => Answer::note(format!("{far} of {} cores are on another node", used.len()))
            .wanted(format!("cores of {list}"))
            .command("--numa auto, with every command of rma-bench"),
        _ => Answer::mend(format!("{far} of the cores named are on another node"))
            .wanted(format!("cores of {list}"))
            .command(format!(
                "--cores {}, with every command of rma-bench",
                near.first().unwrap_or(&0)
            )),
    })
}
