//! The agent's questions during a turn. A question is answered here, by another client, or not at all.
//!
//! It owns which question is asked and what happens to an answer. [`question`] owns how a question looks.

use std::io;

use bridge_protocol::turn::Interrupt;
use bridge_protocol::{ErrorKind, InterruptId};
use serde_json::json;

use super::{ConversationFollower, OnQuestion};
use crate::cli::commands::Pager;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, DIM, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::talk::answer_reader::CTRL_D;
use crate::cli::talk::question::{self, Question, Reply};
use crate::cli::talk::screen::Screen;

impl ConversationFollower<'_> {
    /// Reports open questions that do not belong to the followed turn.
    pub(super) fn report_unrelated_questions<'i>(
        &mut self,
        interrupts: impl IntoIterator<Item = &'i Interrupt>,
    ) -> CommandResult {
        for interrupt in interrupts {
            let whose = match interrupt.orphaned {
                true => "a question of an earlier turn is still open",
                false => "the running turn is waiting for an answer",
            };
            let line = format!("{whose}: {}", question::subject(interrupt));
            self.screen
                .note(&self.screen.output.note_look.paint(DIM, &line))?;
            let how = self.answer_hint(interrupt);
            self.screen.note_dim(&format!("  {how}"))?;
        }
        Ok(())
    }

    /// Whether a question is waiting for the user's answer.
    pub(super) fn is_asking(&self) -> bool {
        self.answer_reader.is_some() && self.shown_question.is_some()
    }

    /// The question, combined with what is known about its tool call.
    fn question(&self, interrupt: &Interrupt) -> Question {
        let known = question::tool_call_id(interrupt).and_then(|id| self.screen.tool_call(&id));
        let look = self.screen.output.note_look;
        Question::from_interrupt(interrupt, known, &self.folder, look)
    }

    /// Asks the user the first open question.
    pub(super) fn ask_first_question(&mut self) -> CommandResult {
        self.screen.output.update_size();
        let first = self.questions.front().filter(|_| self.answer_reader.is_some());
        self.shown_question = first.map(|interrupt| self.question(interrupt));
        self.show_question()
    }

    /// Restores the mode of the terminal for its next reader.
    pub(super) fn release_keys(&mut self) {
        if let Some(person) = &mut self.answer_reader {
            person.release();
        }
    }

    /// Shows the question and starts reading the answer.
    pub(super) fn show_question(&mut self) -> CommandResult {
        let (Some(interrupt), Some(asked)) = (self.questions.front(), &self.shown_question) else {
            self.release_keys();
            return Ok(());
        };
        let lines = asked.lines(self.screen.output.note_look);
        let help = asked.how_to_answer(&question::decline_command(&self.advice(), interrupt));
        self.screen.stop_spinner();
        if let Some(person) = &mut self.answer_reader
            && let Err(error) = person.listen()
        {
            tracing::debug!(%error, "the terminal cannot be read");
            self.answer_reader = None;
            return Ok(());
        }
        self.show_even_if_quiet(|screen| {
            screen.question(&lines)?;
            screen.note_dim(&format!("  {help}"))
        })
    }

    /// Prints what the user has to see to answer a question, even with `--quiet`.
    fn show_even_if_quiet(&mut self, say: impl FnOnce(&mut Screen<'_>) -> CommandResult) -> CommandResult {
        let quiet = std::mem::take(&mut self.screen.output.quiet);
        let said = say(&mut self.screen);
        self.screen.output.quiet = quiet;
        said
    }

    /// Handles the answer typed to the current question; `None` means that the terminal cannot be read.
    pub(super) async fn take_answer(&mut self, typed: Option<String>) -> CommandResult {
        let Some(typed) = typed else {
            self.answer_reader = None;
            return self.handle_unattended_questions().await;
        };
        let (look, advice) = (self.screen.output.note_look, self.advice());
        let (Some(interrupt), Some(question)) = (self.questions.front(), &mut self.shown_question) else {
            return Ok(());
        };
        if typed == CTRL_D {
            self.mark_user_left();
            return Err(self.left_open_problem(Exit::QuestionOpen));
        }
        if typed.is_empty() && !question.is_form() {
            return Ok(());
        }
        let reply = question.answer(interrupt, &typed);
        let allows = question.is_unread()
            && match &reply {
                Reply::Answer(outcome, _) => question.allows(outcome),
                Reply::Next(..) => true,
                Reply::Unknown(_) => false,
            };
        if (typed == "d" && !question.is_form()) || allows {
            let details = question.whole(look);
            question.was_fully_shown = true;
            if allows {
                self.show_even_if_quiet(|screen| {
                    screen.note_dim("  not all of it was shown; read it, then answer again:")
                })?;
            }
            return self.show_in_pager(&details);
        }
        let (outcome, said) = match reply {
            Reply::Answer(outcome, said) => (outcome, said),
            Reply::Next(form, said) => {
                question.ask_next(*form);
                self.show_even_if_quiet(|screen| screen.note_dim(&format!("  {said}")))?;
                return self.show_question();
            }
            Reply::Unknown(why) => {
                let why = (typed != "?").then_some(why);
                let decline = question::decline_command(&advice, interrupt);
                let help: Vec<String> = why.into_iter().chain(question.help(&decline)).collect();
                return self.show_even_if_quiet(|screen| {
                    help.iter()
                        .try_for_each(|line| screen.note_dim(&format!("  {line}")))
                });
            }
        };
        self.show_even_if_quiet(|screen| screen.note_dim(&format!("  {said}")))?;
        self.release_keys();
        self.shown_question = None;
        let Some(interrupt) = self.questions.pop_front() else {
            return Ok(());
        };
        self.screen.start_spinner();
        let daemon = self.daemon();
        let respond = question::respond_call(self.id, interrupt.id.clone(), outcome);
        match self.wait_unless_left(daemon.call(respond)).await {
            Err(problem) if problem.exit == Exit::Busy => {
                self.questions.push_front(interrupt);
                if problem.kind() != Some(ErrorKind::Busy) {
                    // Another client answered first, or the turn has ended; an event about that removes the question.
                    return Ok(());
                }
                self.show_even_if_quiet(|screen| screen.note_dim(&problem.text()))?;
            }
            responded => drop(responded?),
        }
        self.ask_first_question()
    }

    /// The problem of a user who leaves the question open.
    pub(super) fn left_open_problem(&self, exit: Exit) -> Problem {
        let answer = self.advice().answer("");
        Problem::new(exit, "the question is still open; nothing was answered")
            .hint(format!("answer it later: {answer}"))
    }

    /// Shows text in the pager, and asks again after it.
    fn show_in_pager(&mut self, text: &str) -> CommandResult {
        self.release_keys();
        // Standard output may be a file that gets only the answer.
        let is_shown = Pager::start(io::stderr()).is_some_and(|mut pager| {
            pager.write(text);
            pager.wait()
        });
        if !is_shown {
            self.show_even_if_quiet(|screen| screen.note_verbatim(text.trim_end()))?;
        }
        self.show_question()
    }

    /// The problem of a question that no user is here to answer.
    pub(in crate::cli::talk) fn unanswered_problem(&self, interrupt: &Interrupt) -> Problem {
        let (id, how) = (humanize::short_id(self.id), self.answer_hint(interrupt));
        let subject = question::subject(interrupt);
        let message = format!("the agent is waiting for an answer: {subject}");
        Problem::new(Exit::QuestionOpen, message)
            .hint(format!("{how}; sessionctl attach {id} follows the turn"))
            .with_details(json!({"interruptId": interrupt.id, "options": interrupt.options}))
    }

    /// Applies `--on-question` to each open question when there is no person to ask.
    ///
    /// # Errors
    /// With [`Exit::QuestionOpen`] when they are to be left open.
    pub(super) async fn handle_unattended_questions(&mut self) -> CommandResult {
        if self.answer_reader.is_some() {
            return Ok(());
        }
        let new = self
            .questions
            .iter()
            .filter(|question| !self.reported_questions.contains(&question.id));
        for interrupt in new.cloned().collect::<Vec<_>>() {
            self.reported_questions.insert(interrupt.id.clone());
            let question = self.question(&interrupt);
            let look = self.screen.output.note_look;
            self.screen.question(&question.report_lines(look))?;
            match self.on_question {
                OnQuestion::Wait => {
                    let how = self.answer_hint(&interrupt);
                    self.screen.note_styled(ATTENTION, &format!("  {how}"))?;
                }
                OnQuestion::Deny => {
                    self.screen.note_dim("  denied because of --on-question deny")?;
                    let refusal = question::refusal_outcome(&interrupt);
                    self.questions.retain(|open| open.id != interrupt.id);
                    let respond = question::respond_call(self.id, interrupt.id, refusal);
                    let daemon = self.daemon();
                    match self.wait_unless_left(daemon.call(respond)).await {
                        Err(problem) if problem.exit != Exit::Busy => return Err(problem),
                        _ => {}
                    }
                }
                OnQuestion::Leave => return Err(self.unanswered_problem(&interrupt)),
            }
        }
        Ok(())
    }

    pub(super) fn answer_hint(&self, interrupt: &Interrupt) -> String {
        question::command(&self.advice(), interrupt)
    }

    /// A question is no longer open.
    pub(super) fn question_resolved(&mut self, id: &InterruptId, by: &str) -> CommandResult {
        let is_known = self.questions.iter().any(|question| question.id == *id);
        let was_asked = self.questions.front().is_some_and(|question| question.id == *id);
        self.questions.retain(|question| question.id != *id);
        if is_known {
            let how = match by {
                "client" => "answered by another client".to_owned(),
                "cancel" => "question withdrawn: the turn was cancelled".to_owned(),
                "agent" => "question withdrawn by the agent".to_owned(),
                "reset" => "question withdrawn: an empty session was started".to_owned(),
                other => format!("answered by {}", one_line(other)),
            };
            self.screen.note_later(&how)?;
        }
        if was_asked && self.questions.is_empty() {
            self.screen.start_spinner();
        }
        if was_asked {
            self.ask_first_question()
        } else {
            Ok(())
        }
    }
}
