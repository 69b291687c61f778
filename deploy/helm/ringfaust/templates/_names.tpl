{{- define "ringfaust.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end }}
{{- define "ringfaust.selector" -}}
app.kubernetes.io/name: ringfaust
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "ringfaust.labels" -}}
{{ include "ringfaust.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "ringfaust.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "ringfaust.container" -}}
{{- with .Values.environmentFromSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/ringfaust, readOnly: true}
  - {name: state, mountPath: /var/lib/ringfaust}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.tlsSecret }}
  - {name: tls, mountPath: /etc/ringfaust-tls, readOnly: true}
  {{- end }}
{{- end }}
