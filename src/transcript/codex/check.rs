
//! What is wrong with a rollout, and what that does to a resume.
