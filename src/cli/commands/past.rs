//! What was said: `checkpoints`, and `history` with its pager.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Child, Command, Stdio};

use bridge_protocol::history::{Checkpoint, HistoryGap, HistoryPage};
use bridge_protocol::method::{self, Method as _};
use bridge_protocol::{CheckpointId, ConversationId, ConversationRef, Cursor, UpstreamId};
use clap::Args;
use futures_util::future::{self, FutureExt as _, OptionFuture};

use super::{Context, count, pages};
use crate::cli::advice::{Advice, Call};
use crate::cli::connect::Daemon;
use crate::cli::output::{STRONG, one_line};
use crate::cli::past::{Renderer, Turns, is_prompt};
use crate::cli::problem::Outcome;
use crate::cli::progress::watched;
use crate::cli::select::Target;
use crate::cli::signals::Lent;
use crate::cli::spoken::spoken;
use crate::cli::table::{Table, dim, left, plain, right};
use crate::cli::words::{self, Clock};

/// Messages that are asked for at once; the daemon's own limit of a page.
const MESSAGE_PAGE: u32 = 1_000;

/// `checkpoints` and `history`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Past {
    #[command(flatten)]
    target: Target,
    /// Show only the last COUNT entries (default: all)
    #[arg(long, short = 'n', value_name = "COUNT", allow_negative_numbers = true, value_parser = count)]
    last: Option<u32>,
}

impl Past {
    fn most(&self) -> usize {
        self.last.map_or(usize::MAX, |last| last as usize)
    }
}

/// Lists the turns of the history, newest first.
pub(in crate::cli) async fn checkpoints(context: &mut Context<'_>, past: Past) -> Outcome {
    let (daemon, conversation) = context.on(past.target.name()).await?;
    context.note_earlier(past.target.name(), &conversation)?;
    let mut seen = Seen::default();
    let listed = turns_by(past.most(), &conversation.id.into(), async |page| {
        let page = context.ask(&daemon, page).await?;
        seen.add(page.kept, page.gaps);
        Ok(page.checkpoints)
    })
    .await?;
    let clock = Clock::here();
    let mut table = Table::new([
        right("TURN"),
        right("WHEN"),
        left("CHECKPOINT").optional(),
        left("PROMPT"),
    ]);
    for checkpoint in &listed {
        let at = checkpoint.at.map(|at| clock.when(at, context.output.look));
        // A picture has no text.
        let prompt = match one_line(&spoken(&checkpoint.prompt)) {
            empty if empty.is_empty() => dim("[no text]"),
            prompt => plain(prompt),
        };
        table.row([
            (checkpoint.step.to_string(), STRONG),
            dim(at.unwrap_or_else(|| "-".to_owned())),
            dim(checkpoint.id.as_str()),
            prompt,
        ]);
    }
    let no_turns = seen.no_turns(&context.output.advice(conversation.id));
    context
        .output
        .table(&table, &context.output.addressed(&no_turns))?;
    seen.report(context)
}

/// Shows what was said.
pub(in crate::cli) async fn history(context: &mut Context<'_>, past: Past) -> Outcome {
    let (daemon, conversation) = context.on(past.target.name()).await?;
    context.note_earlier(past.target.name(), &conversation)?;
    let id = conversation.id;
    let is_paged = !context.output.json && context.output.look.columns.is_some();
    let (mut seen, mut renderer) = (Seen::default(), Renderer::new(context.output.look));
    let mut pager = if is_paged {
        Pager::start(Stdio::inherit())
    } else {
        None
    };
    let mut is_cut = false;
    // Read beside the first page: both are of the same transcript.
    let mut steps = is_paged.then(|| steps(&daemon, id, past.most()).boxed_local());
    let shown = pages(past.most(), async |cursor: Option<Cursor>, limit| {
        let is_first = cursor.is_none();
        let call = method::History {
            last: past.last.filter(|_| is_first),
            cursor,
            limit,
            ..method::History::of(id)
        };
        let call = watched(
            context.output,
            &daemon,
            method::History::NAME,
            daemon.call_raw(call),
        );
        let (page, steps) = future::join(call, OptionFuture::from(steps.take())).await;
        let (mut page, raw) = page?;
        let counted = page.messages.len();
        if past.last.is_some() && is_first && !context.output.json {
            from_its_prompt(&daemon, id, &mut page).await?;
            is_cut = page.previous_cursor.is_some();
        }
        if let Some(steps) = steps {
            let clock = Clock::here();
            renderer.show_turns(Turns { steps, clock });
        }
        seen.add(page.kept, page.gaps);
        let wants_more = match &mut pager {
            _ if context.output.json => context.output.raw(&raw).map(|()| true)?,
            Some(pager) => pager.take(&renderer.page(page.messages)),
            None => context
                .output
                .text(&renderer.page(page.messages))
                .map(|()| true)?,
        };
        // They were shown; only their number is needed.
        Ok((vec![(); counted], page.next_cursor.filter(|_| wants_more)))
    })
    .await;
    // Also if the daemon was lost meanwhile: the user still reads what came.
    let rest = renderer.rest();
    match pager {
        Some(mut pager) => {
            pager.take(&rest);
            pager.end();
        }
        None => context.output.text(&rest)?,
    }
    let advice = context.output.advice(id);
    if shown?.0.is_empty() {
        context
            .output
            .note(&context.output.addressed(&seen.no_turns(&advice)))?;
    }
    if is_cut {
        let all = advice.command(Call::History);
        let line = format!("earlier messages are not shown; to see all: {all}");
        context.output.note(&line)?;
    }
    seen.report(context)
}

/// Extends the first page back to a prompt, so that no reply is shown without its prompt.
async fn from_its_prompt(daemon: &Daemon, id: ConversationId, page: &mut HistoryPage) -> Outcome {
    while page.messages.first().is_some_and(|first| !is_prompt(first))
        && let Some(cursor) = page.previous_cursor.take()
    {
        let earlier = method::History {
            cursor: Some(cursor.clone()),
            limit: Some(MESSAGE_PAGE),
            ..method::History::of(id)
        };
        let mut earlier = daemon.call(earlier).await?;
        let from = earlier.messages.iter().rposition(is_prompt).unwrap_or_default();
        let mut messages = earlier.messages.split_off(from);
        messages.append(&mut page.messages);
        page.messages = messages;
        // What is left of the earlier page counts as well as a page before it.
        page.previous_cursor = earlier.previous_cursor.or((from > 0).then_some(cursor));
    }
    Ok(())
}

/// The number of each of the last turns, as `checkpoints` lists them. What cannot be read has none.
async fn steps(daemon: &Daemon, id: ConversationId, most: usize) -> BTreeMap<CheckpointId, u64> {
    let listed = turns(daemon, &id.into(), most).await.unwrap_or_default();
    listed.into_iter().map(|one| (one.id, one.step)).collect()
}

/// The last turns, newest first.
pub(in crate::cli) async fn turns(
    daemon: &Daemon,
    conversation: &ConversationRef,
    most: usize,
) -> Outcome<Vec<Checkpoint>> {
    turns_by(most, conversation, async |page| {
        Ok(daemon.call(page).await?.checkpoints)
    })
    .await
}

/// The last turns, newest first, of which `page` reads a page.
async fn turns_by(
    most: usize,
    conversation: &ConversationRef,
    mut page: impl AsyncFnMut(method::Checkpoints) -> Outcome<Vec<Checkpoint>>,
) -> Outcome<Vec<Checkpoint>> {
    let listed = pages(most, async |before, limit| {
        let call = method::Checkpoints {
            conversation_id: conversation.clone(),
            before,
            limit,
        };
        let turns = page(call).await?;
        let oldest = turns.last().filter(|oldest| oldest.step > 1);
        let before = oldest.map(|oldest| oldest.id.clone());
        Ok((turns, before))
    });
    listed.await.map(|(listed, _)| listed)
}

/// What the pages of a history say about what they lack.
#[derive(Default)]
struct Seen {
    kept: BTreeSet<UpstreamId>,
    gaps: Vec<HistoryGap>,
}

impl Seen {
    fn add(&mut self, kept: Vec<UpstreamId>, gaps: Vec<HistoryGap>) {
        self.kept.extend(kept);
        // Each page repeats them.
        let gaps = gaps.into_iter().filter(|gap| !self.gaps.contains(gap));
        self.gaps.extend(gaps.collect::<Vec<_>>());
    }

    /// Printed if no turn was listed: there is none, or none can be read.
    fn no_turns(&self, advice: &Advice) -> String {
        match self.gaps.is_empty() {
            true => {
                let send = advice.command(Call::Send("Hello"));
                format!("no turns yet; send the first prompt: {send}")
            }
            false => format!("no turn can be read; {}", lost_hint(advice)),
        }
    }

    fn report(self, context: &mut Context<'_>) -> Outcome {
        note_backups(context, &Vec::from_iter(self.kept))?;
        let mut gaps = self.gaps.iter();
        gaps.try_for_each(|gap| warn_incomplete(context, &gap.upstream_id, &gap.detail))
    }
}

/// What to do about a transcript that is missing, and has no backup.
pub(in crate::cli) fn lost_hint(advice: &Advice) -> String {
    format!(
        "if its transcript is missing, put it back, or start a new chat under the same id: sessionctl reset {}",
        advice.conversation
    )
}

/// Says what is missing of a session.
pub(super) fn warn_incomplete(context: &mut Context<'_>, session: &UpstreamId, detail: &str) -> Outcome {
    let session = words::short(session.as_str());
    let what = format!("session {session}: {}", one_line(detail));
    context.output.warning("incomplete:", &what)
}

/// Says which sessions were read from backups.
pub(super) fn note_backups(context: &mut Context<'_>, kept: &[UpstreamId]) -> Outcome {
    if kept.is_empty() {
        return Ok(());
    }
    let sessions: Vec<String> = kept.iter().map(|id| words::short(id.as_str())).collect();
    let sessions = sessions.join(", ");
    context.output.aside(&format!(
        "read from the backup of session {sessions}: the agent's transcript is missing"
    ))
}

/// A program that shows long text a screen at a time.
pub(in crate::cli) struct Pager {
    child: Child,
    /// It reads the same terminal as this process.
    _lent: Lent,
}

impl Pager {
    /// Starts `$PAGER`, else `less` if it is there, which writes there; nothing if neither starts or `$PAGER` is empty.
    pub(in crate::cli) fn start(output: impl Into<Stdio>) -> Option<Self> {
        let wanted = std::env::var("PAGER").ok();
        let mut command = match wanted.as_deref().map(str::trim) {
            Some("") => return None,
            // A command line, as other programs read it.
            Some(line) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", line]);
                shell
            }
            None => Command::new("less"),
        };
        if std::env::var_os("LESS").is_none() {
            // Leave at once if it all fits, show colours, leave the text on the screen.
            command.env("LESS", "FRX");
        }
        let lent = Lent::now();
        let child = command.stdin(Stdio::piped()).stdout(output).spawn().ok()?;
        Some(Self { child, _lent: lent })
    }

    /// Hands text over; false if the reader has left.
    pub(in crate::cli) fn take(&mut self, text: &str) -> bool {
        let input = self.child.stdin.as_mut();
        input.is_some_and(|input| input.write_all(text.as_bytes()).is_ok())
    }

    /// Waits until the reader leaves; false if the program failed, and may have shown nothing.
    pub(in crate::cli) fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().is_ok_and(|ended| ended.success())
    }
}

impl Drop for Pager {
    /// This process must not read on before the pager has ended.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            tracing::debug!(%error, "the pager could not be waited for");
        }
    }
}
