//! Interrupts: when they come, and where.

use super::{Answer, Answered, Subject};
use crate::snapshot::Unseen;
use crate::{setting::Setting, text::cores};

/// Microseconds that an interrupt may wait.
const USECS_MAX: u32 = 4;

pub(super) fn coalescing(subject: &Subject<'_>) -> Answered {
    let Some(seen) = *subject.interface.coalescing.get()? else {
        return Ok(Answer::does_not_apply("the driver delays no interrupts"));
    };
    let Some(usecs) = seen.rx_usecs else {
        return Ok(Answer::does_not_apply("the driver tells no delay of interrupts"));
    };
    let found = format!("rx-usecs {usecs}{}", if seen.adaptive { ", adaptive" } else { "" });
    if usecs <= USECS_MAX && !seen.adaptive {
        return Ok(Answer::ok(found));
    }
    let adaptive = if seen.adaptive { "adaptive-rx off " } else { "" };
    Ok(Answer::mend(found)
        .wanted("rx-usecs 0")
        .command(format!("ethtool -C {} {adaptive}rx-usecs 0", subject.name()))
        .setting(Setting::Coalescing {
            interface: subject.interface.name.clone(),
            adaptive: false,
            rx_usecs: 0,
        }))
}

pub(super) fn irq(subject: &Subject<'_>) -> Answered {
    let (interface, machine) = (subject.interface, subject.machine);
    let numbers = interface.interrupts.get()?;
    if numbers.is_empty() {
        return Ok(Answer::does_not_apply("it has no interrupts of its own"));
    }
    let near = super::pcie::near(subject)?;
    let is_good = |core: &usize| near.contains(core) && !subject.wanted.cores.contains(core);
    let (mut bad, mut seen) = (Vec::new(), 0);
    for number in numbers {
        let path = format!("proc/irq/{number}/smp_affinity_list");
        let Some(list) = interface.files.find(&path)? else { continue };
        seen += 1;
        // One that may go to good cores as well is left to the kernel.
        if !cores(list).iter().any(is_good) {
            bad.push(*number);
        }
    }
    if seen == 0 {
        return Err(Unseen("no file tells which cores the interrupts go to".to_owned()));
    }
    let good = near.iter().find(|it| is_good(it));
    if good.is_none() && !bad.is_empty() {
        return Ok(Answer::mend("on threads' cores, and no other is near the device")
            .wanted("a core near the device that no thread is pinned to")
            .command("rma-bench doctor --cores LIST"));
    }
    let (Some(first), Some(good)) = (bad.first(), good) else {
        return Ok(match machine.irqbalance.get()? {
            true => Answer::note("irqbalance runs, and may move interrupts to an engine's core"),
            false => Answer::ok(format!("{} near the device", numbers.len())),
        });
    };
    let answer = Answer::mend(format!(
        "{} of {} on another node or an engine's core, the first is {first}",
        bad.len(),
        numbers.len()
    ))
    .wanted(format!("core {good}, or another near the device"));
    Ok(bad.iter().fold(answer, |answer, number| {
        answer.file(&format!("/proc/irq/{number}/smp_affinity_list"), &good.to_string())
    }))
}

pub(super) fn busy_poll(subject: &Subject<'_>) -> Answered {
    if !subject.wanted.busy_poll {
        return Ok(Answer::does_not_apply("--busy-poll is not asked for"));
    }
    let wanted = [("napi_defer_hard_irqs", "2"), ("gro_flush_timeout", "200000")];
    let mut answer = Answer::mend("unset").wanted("both set");
    for (file, value) in wanted {
        if subject.interface.files.text(file)? == "0" {
            answer =
                answer.file(&format!("/sys/class/net/{}/{file}", subject.interface.name), value);
        }
    }
    Ok(if answer.settings.is_empty() { Answer::ok("both set") } else { answer })
}
